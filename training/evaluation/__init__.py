"""The parts of training/evaluate.py: settings, tasks, figures, the file of records, and the plot."""
