"""What llama-server is: flags, GGUF facts, memory, HTTP surface, log lines, the embedded engine. No verdicts."""
