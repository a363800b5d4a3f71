"""Lakes whose formats commit in the lake or a catalogue: manifests beside them tell what was exported (state.py)."""
