package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/terminal"
)

// newPTY opens a terminal with the given number of columns. show closes it and returns the bytes written to it.
func newPTY(t *testing.T, width uint16) (tty *os.File, show func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 300, Col: width})
	}
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // ends with EIO once the other end is closed
		shown <- strings.ReplaceAll(string(text), "\r\n", "\n")
	}()
	return tty, func() string { _ = tty.Close(); return <-shown }
}

// TestTerminal expects on a terminal a log in the format for people, and tables whose values are cut to its width.
// Output that goes elsewhere must not be cut.
func TestTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 2)
	l.Produce("orders", 3, 0, 1)
	tty, show := newPTY(t, 60)
	if code := run(t.Context(), []string{"run", "--until-current", "--config", l.Config}, tty, tty); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if text := show(); !strings.Contains(text, " \x1b[32mINFO \x1b[0m committed  ") || !strings.Contains(text, "left out characters of long values; log.format: json writes values in full") {
		t.Errorf("the log:\n%s", text)
	}
	tty, show = newPTY(t, 60)
	if code := run(t.Context(), []string{"verify", "--kafka", "--config", l.Config}, tty, tty); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	text := show()
	if !strings.Contains(text, "\nvalues are cut to the width of the terminal: ") || !strings.Contains(text, "ok: no gap") {
		t.Errorf("the table:\n%s", text)
	}
	if out, _ := l.runs(exitOK, "verify", "--kafka"); strings.Contains(out, "…") || !strings.Contains(out, "RECORDS COMPARED") {
		t.Errorf("not on a terminal:\n%s", out)
	}
}

// TestPrintList_Terminal: on a terminal a table is cut to its width, and a wide one never.
func TestPrintList_Terminal(t *testing.T) {
	long := strings.Repeat("x", 200)
	columns := []column[string]{
		{title: "NAME", cell: func(s string) string { return s }},
		{title: "LENGTH", wide: true, cell: func(s string) string { return fmt.Sprint(len(s)) }},
	}
	shown := map[bool]string{}
	for _, wide := range []bool{false, true} {
		tty, show := newPTY(t, 60)
		screen := terminal.NewScreen(tty, noEnv)
		if err := printList(screen, wide, []string{long}, slices.Clone(columns)...); err != nil {
			t.Fatal(err)
		}
		shown[wide] = show()
	}
	if strings.Contains(shown[false], long) || strings.Contains(shown[false], "LENGTH") || !strings.Contains(shown[false], "--output wide shows them whole") {
		t.Error(shown[false])
	}
	if !strings.Contains(shown[true], long+"  200") || strings.Contains(shown[true], "values are cut") {
		t.Error(shown[true])
	}
}
