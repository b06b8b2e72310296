"""Faults on purpose: runs that are killed, starved and damaged, then resumed and compared with an unbroken one."""
