"""The parts of tools/evaluate.py: settings, tasks, figures, the file of records, and the plot."""
