package gen

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parsed decodes a record's JSON with the standard library.
func parsed(t *testing.T, value []byte) Order {
	t.Helper()
	var in struct {
		OrderID    string     `json:"order_id"`
		CustomerID *string    `json:"customer_id"`
		StoreID    *int64     `json:"store_id"`
		Quantity   *int32     `json:"quantity"`
		Total      *float64   `json:"total"`
		Discount   *float64   `json:"discount"`
		CreatedAt  *time.Time `json:"created_at"`
		Paid       *bool      `json:"paid"`
		Status     *string    `json:"status"`
		Coupon     *string    `json:"coupon"`
		Shipping   *Shipping  `json:"shipping"`
		Tags       []*string  `json:"tags"`
	}
	if err := json.Unmarshal(value, &in); err != nil {
		t.Fatalf("%v: %s", err, value)
	}
	out := Order{
		OrderID: in.OrderID, CustomerID: in.CustomerID, StoreID: in.StoreID, Quantity: in.Quantity, Total: in.Total,
		Discount: in.Discount, Paid: in.Paid, Status: in.Status, Coupon: in.Coupon, Shipping: in.Shipping,
		HasTags: in.Tags != nil,
	}
	if len(in.Tags) > 0 {
		out.Tags = in.Tags
	}
	if in.CreatedAt != nil {
		out.CreatedAt = new(in.CreatedAt.UnixMicro())
	}
	return out
}

func TestRecordsAreWhatTheirJSONSays(t *testing.T) {
	for _, odd := range []int{0, 1000} {
		orders := Orders{Seed: 7, Span: 2000, Odd: odd}
		size := 0
		for i := range int64(2000) {
			rec := orders.Record(i)
			size += len(rec.Value)
			if diff := cmp.Diff(parsed(t, rec.Value), rec.Order); diff != "" {
				t.Fatalf("record %d of %d odd in 1000: %s\n%s", i, odd, diff, rec.Value)
			}
			if again := orders.Record(i); cmp.Diff(again, rec) != "" {
				t.Fatalf("record %d is another one the second time", i)
			}
		}
		if mean := size / 2000; odd == 0 && (mean < 380 || mean > 392) {
			t.Errorf("the mean size of a record is %d bytes, want about 386", mean)
		}
	}
}

func TestHashSeesEveryColumn(t *testing.T) {
	at := Coordinates{"orders", 3, 42}
	rec := Orders{Seed: 1, Span: 10}.Record(5)
	rec.Order.Coupon, rec.Order.Discount, rec.Order.Shipping.Note = new("c"), new(0.5), new("n")
	rec.Order.Tags = []*string{new("a"), nil}
	seen := map[string]string{rec.Hash(at): "nothing"}
	differs := func(what, hash string) {
		t.Helper()
		if other, ok := seen[hash]; ok {
			t.Errorf("a row with another %s has the hash of one with another %s", what, other)
		}
		seen[hash] = what
	}
	differs("topic", rec.Hash(Coordinates{"order", 3, 42}))
	differs("partition", rec.Hash(Coordinates{"orders", 34, 2}))
	differs("offset", rec.Hash(Coordinates{"orders", 3, 43}))
	for what, change := range map[string]func(r *Record, o *Order){
		"time":          func(r *Record, _ *Order) { r.Time++ },
		"order_id":      func(_ *Record, o *Order) { o.OrderID += "," },
		"customer_id":   func(_ *Record, o *Order) { o.CustomerID = nil },
		"customer_id ~": func(_ *Record, o *Order) { o.CustomerID = new("~") },
		"store_id":      func(_ *Record, o *Order) { o.StoreID = new(*o.StoreID + 1) },
		"quantity":      func(_ *Record, o *Order) { o.Quantity = nil },
		"total":         func(_ *Record, o *Order) { o.Total = new(*o.Total + 1e-9) },
		"discount":      func(_ *Record, o *Order) { o.Discount = nil },
		"created_at":    func(_ *Record, o *Order) { o.CreatedAt = new(*o.CreatedAt + 1) },
		"paid":          func(_ *Record, o *Order) { o.Paid = new(!*o.Paid) },
		"paid null":     func(_ *Record, o *Order) { o.Paid = nil },
		"status":        func(_ *Record, o *Order) { o.Status = new("") },
		"coupon":        func(_ *Record, o *Order) { o.Coupon = nil },
		"shipping":      func(_ *Record, o *Order) { o.Shipping = nil },
		"shipping {}":   func(_ *Record, o *Order) { o.Shipping = &Shipping{} },
		"street":        func(_ *Record, o *Order) { s := *o.Shipping; s.Street = new("x"); o.Shipping = &s },
		"city":          func(_ *Record, o *Order) { s := *o.Shipping; s.City = new("x"); o.Shipping = &s },
		"zip":           func(_ *Record, o *Order) { s := *o.Shipping; s.Zip = new("x"); o.Shipping = &s },
		"country":       func(_ *Record, o *Order) { s := *o.Shipping; s.Country = new("x"); o.Shipping = &s },
		"lat":           func(_ *Record, o *Order) { s := *o.Shipping; s.Lat = new(*s.Lat + 1); o.Shipping = &s },
		"note":          func(_ *Record, o *Order) { s := *o.Shipping; s.Note = nil; o.Shipping = &s },
		"tags":          func(_ *Record, o *Order) { o.Tags = o.Tags[:1] },
		"tags order":    func(_ *Record, o *Order) { o.Tags = []*string{nil, new("a")} },
		"tags {}":       func(_ *Record, o *Order) { o.Tags = nil },
		"tags null":     func(_ *Record, o *Order) { o.Tags, o.HasTags = nil, false },
	} {
		changed := rec
		change(&changed, &changed.Order)
		differs(what, changed.Hash(at))
	}
}

func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.csv")
	l, err := NewLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Add(Entry{Coordinates{"a", 1, 7}, "h7"}, Entry{Coordinates{"a", 1, 5}, "h5"})
	l.Add(Entry{Coordinates{"a", 0, 0}, "h0"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("topic,partition,offset,hash\na,1,7,h7\na,1,5,h5\na,0,0,h0\n", string(got)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[int32]int64{0: 1, 1: 8}, l.Ends()); diff != "" || l.Len() != 3 {
		t.Errorf("%d entries: %s", l.Len(), diff)
	}
}
