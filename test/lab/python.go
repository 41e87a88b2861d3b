package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Python runs a script below test/ with the Python of the readers. It returns stdout and stderr together.
func Python(ctx context.Context, script string, args ...string) ([]byte, error) {
	cmd, err := pythonCommand(ctx, readersPart, script, args)
	if err != nil {
		return nil, err
	}
	return output(cmd, script)
}

// Spark runs a script below test/ with Spark's Python. The environment variable LAB_SPARK_JARS names Spark's jars.
func Spark(ctx context.Context, script string, args ...string) ([]byte, error) {
	cmd, err := pythonCommand(ctx, sparkPart, script, args)
	if err != nil {
		return nil, err
	}
	return output(cmd, script)
}

func output(cmd *exec.Cmd, script string) ([]byte, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("run %s: %w", script, err)
	}
	return out, nil
}

// The parts that have a Python.
const (
	readersPart = "readers"
	sparkPart   = "spark"
)

// pythonCommand returns the command that runs a script below test/ with the Python of a part.
func pythonCommand(ctx context.Context, part, script string, args []string) (*exec.Cmd, error) {
	python, err := Install(ctx, part)
	if err != nil {
		return nil, err
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, python, append([]string{filepath.Join(root, "test", script)}, args...)...)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+AccessKey, "AWS_SECRET_ACCESS_KEY="+SecretKey,
		"AWS_REGION="+Region, "PYTHONDONTWRITEBYTECODE=1")
	if part == sparkPart {
		home, err := Home()
		if err != nil {
			return nil, err
		}
		cmd.Env = append(cmd.Env, "LAB_SPARK_JARS="+filepath.Join(home, "spark", "jars"), "SPARK_LOCAL_IP=127.0.0.1")
	}
	return cmd, nil
}

// Script is a script that stays and answers requests, so that what takes long to start is started once. Each request is
// a line of JSON to its stdin. An empty line ends the answer.
type Script struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// StartPython starts a script that answers requests, with the Python of the readers. The caller must call Close.
func StartPython(ctx context.Context, script string, args ...string) (*Script, error) {
	return startScript(ctx, readersPart, script, args)
}

// StartSpark starts a script that answers requests, with Spark's Python. The caller must call Close.
func StartSpark(ctx context.Context, script string, args ...string) (*Script, error) {
	return startScript(ctx, sparkPart, script, args)
}

func startScript(ctx context.Context, part, script string, args []string) (*Script, error) {
	cmd, err := pythonCommand(ctx, part, script, args)
	if err != nil {
		return nil, err
	}
	s := &Script{name: script, cmd: cmd}
	cmd.Stderr, cmd.SysProcAttr = &s.stderr, dieWithParent()
	cmd.WaitDelay = 10 * time.Second // Spark's JVM may outlive its Python for a moment and keep stderr open
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("start %s: %w", script, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", script, err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	return s, nil
}

// Ask sends a request and returns the lines of the answer. After an error the script has ended.
func (s *Script) Ask(request any) ([]byte, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", s.name, err)
	}
	_, err = s.in.Write(append(text, '\n'))
	var answer []byte
	for err == nil {
		var line []byte
		if line, err = s.out.ReadBytes('\n'); err == nil && len(line) == 1 {
			return answer, nil
		}
		answer = append(answer, line...)
	}
	return nil, fmt.Errorf("ask %s: %w", s.name, errors.Join(err, s.Close(), errors.New(s.stderr.String())))
}

// Close ends the script and waits for its end.
func (s *Script) Close() error {
	_ = s.in.Close() // an error means that it is closed
	if s.cmd.ProcessState != nil {
		return nil
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("end %s: %w", s.name, err)
	}
	return nil
}
