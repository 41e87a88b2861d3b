package objstore_test

import (
	"errors"
	"strings"
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

func TestSub(t *testing.T) {
	objstoretest.Run(t, func(t *testing.T) objstore.Store {
		t.Helper()
		whole := objstore.NewMem()
		for _, key := range []string{"a", "lake/orders", "lake/orders-2/x", "lake/ordersx", "lake/x", "z"} {
			if err := whole.Put(t.Context(), key, strings.NewReader("not below"), objstore.Replace); err != nil {
				t.Fatal(err)
			}
		}
		return objstore.Sub(whole, "lake/orders")
	})
}

// TestSubShares: Sub returns a part of a store. The whole store has the objects of the part, and no key reaches an
// object outside of the part.
func TestSubShares(t *testing.T) {
	whole := objstore.NewMem()
	part := objstore.Sub(whole, "orders")
	if err := part.Put(t.Context(), "x/y", strings.NewReader("1"), objstore.IfAbsent); err != nil {
		t.Fatal(err)
	}
	if _, err := whole.Head(t.Context(), "orders/x/y"); err != nil {
		t.Error(err)
	}
	if i, err := part.Head(t.Context(), "x/y"); err != nil || i.Key != "x/y" {
		t.Error(i, err)
	}
	for _, key := range []string{"../other", "", "/x"} {
		if err := part.Put(t.Context(), key, strings.NewReader("1"), objstore.Replace); !errors.Is(err, objstore.ErrRefused) {
			t.Errorf("key %q: %v", key, err)
		}
	}
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
