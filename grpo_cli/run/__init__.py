"""The run folder: the files of a run, written so that a crash at any moment loses nothing.

folder   the files of a run      records   one sample as a line       lines   appending, replacing, reading lines
info     what a run is about     find      which run a name means     follow  reading a run while it is written
reading  some samples of the whole run, each file once
"""
