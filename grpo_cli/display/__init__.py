"""What a person sees of a run: one protocol, one face for each stream, and the frame they paint.

    protocol   what every face can be told             choose     which face a stream gets
    frame/     the content of the screen, as lines     terminal/  painting it, and reading keys
    watch/     the same from a run's folder alone

A display draws what it is given; findings are computed in `findings`, statistics in `statistics`.
"""
