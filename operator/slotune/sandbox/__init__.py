"""One protocol to measure a trial on a fresh server, and the ways to run one."""
