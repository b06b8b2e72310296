"""`grpo runs`: what lies under a folder of runs.

summary   one run in one line, from its folder alone     listing   the table, its order and its text
comparing   runs beside each other, paired by prompt     removing   which of them may be deleted
"""
