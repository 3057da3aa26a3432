"""What production delivers: a real Prometheus is asked, and everything that is not one."""
