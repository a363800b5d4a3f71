"""Its migrations."""
