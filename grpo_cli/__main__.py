"""`python -m grpo_cli` is the command `grpo`."""

from grpo_cli.app import main

if __name__ == "__main__":
    main()
