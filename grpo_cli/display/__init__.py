"""The displays of a run: one protocol, one display for each stream, and the frame that they paint.

    protocol   the methods of every display            choose     which display a stream gets
    frame/     the content of the screen, as lines     terminal/  painting it, and reading keys
    watch      the same from a run's folder alone

A display draws what it is given; findings are computed in `findings`, statistics in `statistics`.
"""
