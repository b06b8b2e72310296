"""Killable processes: verifiers start, use and end processes of their own only through this package.

    this process                          started by exec               forked, and killed at their limits
    Pool ─ Slot (a thread) ─ LinkedProcess ═══ keeper (`worker.keep`) ─── worker ─── what the task starts
                        └──────────────── Channel ══════════════════════════┘
    Lanes ─ LaneSlot ─ Lane, a LinkedProcess ═══ lane (`sandbox/inside`) ─── run

`linked` starts a process and shakes hands with it, numbers what is asked, waits no longer than its limit and ends the
process; `wire` frames the messages of every socket; `worker` is the other side of a pool, `sandbox/inside` that of a lane,
which may import nothing of ours and so frames its messages itself. A pool judges by a task, `module:function`: functions of
users, environments, patterns, JSON, computer algebra. A lane runs programs that must not even see this machine.

What holds for all of them: nothing that a process sends raises anything but a verdict; an answer out of turn ends its
sender; every process ends with this one, however this one ends, and none ends with a forked copy of it.
"""
