"""What the kernel forbids inside: system calls, namespaces, Landlock."""
