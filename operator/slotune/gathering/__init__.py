"""Where symptoms come from: a running server, a log, a cluster. Reading only; nothing here changes anything."""
