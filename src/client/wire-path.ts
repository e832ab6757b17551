import { invalidParams } from "../protocol/errors.ts";
import { decodePathText, pathFromUri, uriFromPath } from "../protocol/path-uri.ts";

/** A native absolute path or a `file:` URI, as the wire has it. */
export function toPathUri(path: string, what = "path"): string {
  if (/^file:/i.test(path)) return path;
  if (!path.startsWith("/"))
    throw invalidParams(`${what} \`${path}\` must be an absolute path or a file: URI`);
  return uriFromPath(path);
}

/** Answers in the form that was asked in: a URI for a URI, a native path for a native path. */
export function likeAsked(asked: string, uri: string): string {
  return /^file:/i.test(asked) ? uri : pathFromUri(uri);
}

/** An entry of a directory, by its name as `fs/scan` tells it: a native path where the name is text, else a URI. */
export function belowPath(directory: string, name: string): string {
  if (/^file:/i.test(directory)) return `${directory.replace(/\/$/, "")}/${name}`;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(decodePathText(name));
    return `${directory.replace(/\/$/, "")}/${text}`;
  } catch {
    return `${uriFromPath(directory).replace(/\/$/, "")}/${name}`;
  }
}
