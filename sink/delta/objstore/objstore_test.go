package objstore_test

import (
	"testing"

	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

func TestMem(t *testing.T) {
	objstoretest.Run(t, func(*testing.T) objstore.Store { return objstore.NewMem() })
}

func TestLocal(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		t.Helper()
		s, err := objstore.NewLocal(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}

func TestS3(t *testing.T) {
	for _, prefix := range []string{"", "some prefix/+%"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			objstoretest.Run(t, func(t *testing.T) objstore.Store {
				t.Helper()
				c := objstoretest.ServeS3(t, nil)
				c.Prefix = prefix
				return openS3(t, c)
			})
		})
	}
}

func openS3(t *testing.T, c objstore.S3Config) *objstore.S3 {
	t.Helper()
	s, err := objstore.NewS3(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
