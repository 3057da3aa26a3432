"""What production delivers beside what was measured. `prometheus` asks; all the others are pure and only decide."""
