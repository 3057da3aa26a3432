"""From a decision to tables, HTML and plots. Functions from facts to text; the command line writes the files."""
