import { normalizePathUri } from "./path-uri.ts";
import { checkedString } from "./schema.ts";

/** A path as a `file:` URI. Decoding rejects other URIs and returns the text unchanged. */
export const pathUri = checkedString("file: URI", (uri) => void normalizePathUri(uri));
