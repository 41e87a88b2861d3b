package intake

import "sluice/connector"

// decoderOf returns the decoder that the lanes use.
func decoderOf(t *connector.Target) connector.Decoder {
	if d, ok := t.Decoder.(connector.IDDecoder); ok && t.Duplicates != nil && t.Duplicates.IDs {
		return d.WithIDs()
	}
	return t.Decoder
}
