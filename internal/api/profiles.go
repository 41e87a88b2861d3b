package api

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"time"

	"sluice/reliability"
)

// Package net/http/pprof is not used: it registers its routes for the whole process when it is linked.

// The default and the largest duration of a CPU profile or a trace, in seconds.
const (
	defaultProfile = 10
	longestProfile = 30
)

const (
	cpuProfile   = "profile"
	traceProfile = "trace"
)

// profileNames returns the names of all profiles, sorted.
func profileNames() []string {
	names := []string{cpuProfile, traceProfile}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	return names
}

func (s *Server) profiles(*request) (answer, error) {
	return jsonAnswer(struct {
		Profiles []string `json:"profiles"`
	}{profileNames()})
}

// profile takes the named profile and answers with a file for go tool pprof or, for the profile trace, for go tool
// trace. With the parameter debug above 0 it answers with text instead. CPU profile and trace ignore debug.
func (s *Server) profile(r *request) (answer, error) {
	name := r.PathValue("profile")
	seconds, err := r.number("seconds", defaultProfile, 1, longestProfile)
	if err != nil {
		return answer{}, err
	}
	debug, err := r.number("debug", 0, 0, 2)
	if err != nil {
		return answer{}, err
	}
	gc, err := r.number("gc", 0, 0, 1)
	if err != nil {
		return answer{}, err
	}
	var file bytes.Buffer
	media := "application/octet-stream"
	switch found := pprof.Lookup(name); {
	case name == cpuProfile:
		err = record(r.Context(), seconds, func() error { return pprof.StartCPUProfile(&file) }, pprof.StopCPUProfile)
	case name == traceProfile:
		err = record(r.Context(), seconds, func() error { return trace.Start(&file) }, trace.Stop)
	case found == nil:
		return answer{}, newProblem(codeNotFound, "there is no such profile: %sdebug/pprof/ has all", prefix)
	default:
		if gc > 0 {
			runtime.GC()
		}
		if debug > 0 {
			media = "text/plain; charset=utf-8"
		}
		err = found.WriteTo(&file, debug)
	}
	if err != nil {
		return answer{}, err
	}
	return answer{body: file.Bytes(), media: media}, nil
}

// record calls start, waits for so many seconds, and calls stop. It returns an error if start fails, or if ctx ends
// before the time is over.
func record(ctx context.Context, seconds int, start func() error, stop func()) error {
	if err := start(); err != nil {
		return newProblem(codeRefused, "the profile cannot be taken now: %v", err)
	}
	defer stop()
	if err := reliability.Wait(ctx, time.Duration(seconds)*time.Second); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return nil
}

// number returns the value of an integer parameter of the query. If the parameter is missing, it returns the argument
// value. If the number is outside of [low, high], or the text is no number, the error is a problem.
func (r *request) number(name string, value, low, high int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return value, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, newProblem(codeInvalid, "%s is not a number from %d to %d", name, low, high)
	}
	return n, nil
}
