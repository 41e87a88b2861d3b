//go:build lab

package pods

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"sluice/test/lab"
)

// crowdEnv names the variable that makes the test binary run [crowd]. It holds a control group and its limit in
// bytes, separated by a space.
const crowdEnv = "SLUICE_PODS_CROWD"

// outOfMemory makes the kernel kill the container's process for its memory: another process in the container's control
// group takes all of it. The kernel chooses its victim in the group by scores; Kubernetes gives such a container a high
// one, too. outOfMemory returns once the kernel has counted the kill.
func (k *kubelet) outOfMemory() {
	k.t.Helper()
	own, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	group := k.cgroup()
	before, err := kills(group)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", k.process()), []byte("1000"), 0o644); err != nil {
		k.t.Fatal(err)
	}
	k.note("the test fills the memory of the container")
	env := fmt.Sprintf("%s=%s %d", crowdEnv, group, limit)
	crowd, err := lab.StartProcess("crowd", filepath.Join(k.t.TempDir(), "crowd.log"), []string{env}, own)
	if err != nil {
		k.t.Fatal(err)
	}
	defer func() {
		if err := crowd.Kill(); err != nil {
			k.t.Error(err)
		}
	}()
	await(k.t, "the kernel has killed a process of "+k.name, func() (bool, error) {
		after, err := kills(group)
		if after <= before && !crowd.Running() {
			err = errors.Join(err, fmt.Errorf("the process that fills the memory ended: %s", crowd.Tail()))
		}
		if after > before {
			k.note("the kernel counts %d process killed for the memory of the control group, and %d before", after, before)
		}
		return after > before, err
	})
}

// crowd moves this process into a control group and takes memory. It takes the last part slowly, because what the kernel
// frees by a kill must last until the test has seen the kill.
func crowd() {
	var group string
	var size int
	_, err := fmt.Sscan(os.Getenv(crowdEnv), &group, &size)
	if err == nil {
		err = os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(os.Getpid())), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	taken := make([]byte, 2*size)
	for i := 0; i < len(taken); i += os.Getpagesize() {
		taken[i] = 1
		if i > size/2 && i%(64<<10) == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	runtime.KeepAlive(taken)
	fmt.Fprintln(os.Stderr, "took", len(taken), "bytes, and the kernel killed nothing")
	os.Exit(1)
}

// kills returns how many processes of a control group the kernel has killed for their memory.
func kills(group string) (n int, err error) {
	name := "memory.events" // version 2
	if strings.HasPrefix(group, "/sys/fs/cgroup/memory/") {
		name = "memory.oom_control" // version 1
	}
	text, err := os.ReadFile(filepath.Join(group, name))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.Atoi(strings.TrimSpace(count))
		}
	}
	return 0, fmt.Errorf("%s of %s has no oom_kill: %s", name, group, text)
}

// cgroup returns the folder of the control group that limits the memory of the container.
func (k *kubelet) cgroup() string {
	k.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", k.process()))
	if err != nil {
		k.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[1] == "memory": // version 1
			return filepath.Join("/sys/fs/cgroup/memory", parts[2])
		case parts[0] == "0" && parts[2] != "/": // version 2
			return filepath.Join("/sys/fs/cgroup", parts[2])
		}
	}
	k.t.Fatalf("%s is in no control group for memory:\n%s", k.name, text)
	return ""
}

// limitFile returns the name of the file with the limit of memory in a control group.
func limitFile(group string) string {
	if strings.HasPrefix(group, "/sys/fs/cgroup/memory/") {
		return "memory.limit_in_bytes"
	}
	return "memory.max"
}
