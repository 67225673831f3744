"""What `explain` and `profile` find out about compiled programs: measurements on one call's inputs, and how they are shown."""
