"""The programs, a file for a section or a part of one: what users write, each as small as it can be."""
