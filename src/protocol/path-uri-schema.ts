import { normalizePathUri } from "./path-uri.ts";
import { checked } from "./schema.ts";

/** A path on the wire. Refused while decoding when it is no `file:` URI at all; kept as it was written otherwise. */
export const pathUri = checked("file: URI", (uri) => void normalizePathUri(uri));
