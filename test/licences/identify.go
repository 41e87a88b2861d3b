package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// allowed are the licences that a release may link, each with a phrase by which its text is recognized. These licences
// ask a release only to ship their text and the notices.
var allowed = [...]struct{ id, passage string }{
	{"Apache-2.0", "apache license version 2.0, january 2004"},
	{"Apache-2.0", "licensed under the apache license, version 2.0"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files"},
	{"BSD", "redistribution and use in source and binary forms, with or without modification, are permitted provided that the following conditions are met"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
}

// refused are names and phrases of licences that a release must not link: copyleft licences, and those that forbid some
// uses.
var refused = [...]string{
	"gnu general public license", "gnu affero general public license", "gnu lesser general public license", "gnu library general public license",
	"mozilla public license", "eclipse public license", "common development and distribution license", "european union public licence",
	"server side public license", "business source license", "elastic license", "commons clause", "redis source available license",
	"creative commons attribution-sharealike", "creative commons attribution-noncommercial", "non-commercial use only",
}

// identify returns the SPDX identifiers of the licences in a text. It returns an error if the text names a refused
// licence or has no allowed one.
func identify(body string) (ids []string, err error) {
	words := strings.ToLower(strings.Join(strings.Fields(body), " "))
	for _, passage := range refused {
		if strings.Contains(words, passage) {
			return nil, fmt.Errorf("it names the %s, which a release must not link: replace the module", passage)
		}
	}
	for _, l := range allowed {
		if strings.Contains(words, l.passage) && !slices.Contains(ids, l.id) {
			ids = append(ids, l.id)
		}
	}
	if i := slices.Index(ids, "BSD"); i >= 0 {
		ids[i] = "BSD-2-Clause"
		if strings.Contains(words, "neither the name of") || strings.Contains(words, "may not be used to endorse or promote products") {
			ids[i] = "BSD-3-Clause"
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("it is no licence that is known to be allowed: read it, and add it to test/licences/identify.go or replace the module")
	}
	return ids, nil
}
