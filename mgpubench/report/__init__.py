"""What people see: tables, sentences, exports and progress."""
