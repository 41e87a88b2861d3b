package intake

import "sluice/connector"

// decoderOf returns the decoder for the lanes; it sets the producer's ids only if the store of fingerprints keeps
// them.
func decoderOf(t *connector.Target) connector.Decoder {
	if d, ok := t.Decoder.(connector.IDDecoder); ok && t.Duplicates != nil && t.Duplicates.IDs {
		return d.WithIDs()
	}
	return t.Decoder
}
