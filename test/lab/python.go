package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Python runs a script below test/ with the Python of the readers. It returns stdout and stderr together.
func Python(ctx context.Context, script string, args ...string) ([]byte, error) {
	return runPython(ctx, "readers", nil, script, args)
}

// Spark runs a script below test/ with Spark's Python. The environment variable LAB_SPARK_JARS names Spark's jars.
func Spark(ctx context.Context, script string, args ...string) ([]byte, error) {
	home, err := Home()
	if err != nil {
		return nil, err
	}
	env := []string{"LAB_SPARK_JARS=" + filepath.Join(home, "spark", "jars"), "SPARK_LOCAL_IP=127.0.0.1"}
	return runPython(ctx, "spark", env, script, args)
}

func runPython(ctx context.Context, part string, env []string, script string, args []string) ([]byte, error) {
	python, err := Install(ctx, part)
	if err != nil {
		return nil, err
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, python, append([]string{filepath.Join(root, "test", script)}, args...)...)
	cmd.Env = append(append(os.Environ(), env...), "AWS_ACCESS_KEY_ID="+AccessKey, "AWS_SECRET_ACCESS_KEY="+SecretKey,
		"AWS_REGION="+Region, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("run %s: %w", script, err)
	}
	return out, nil
}
