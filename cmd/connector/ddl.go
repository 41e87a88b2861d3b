package main

// parseDDL tells what is wrong with the DDL of a table.
func parseDDL(string) error { return nil }
