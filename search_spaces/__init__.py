"""What is searched, one file per optimizer family. Edit the ranges, or copy a file and bring your own."""
