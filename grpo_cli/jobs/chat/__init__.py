"""`grpo chat`: a word with a model.

talk   turns typed by a person, answered by the policy     row   a group of samples of one row, judged
"""
