package intake

import "sluice/connector"

// decoderOf returns the decoder for the lanes. If the store of fingerprints keeps the producer's ids, the decoder sets
// them.
func decoderOf(t *connector.Target) connector.Decoder {
	if d, ok := t.Decoder.(connector.IDDecoder); ok && t.Duplicates != nil && t.Duplicates.IDs {
		return d.WithIDs()
	}
	return t.Decoder
}
