"""The subcommands of the command line, one file each. They read, call and print; nothing is decided here."""
