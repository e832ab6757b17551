import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";

export interface WebFile {
  bytes: Buffer;
  /** Null where it is not worth it. */
  gzip: Buffer | null;
  type: string;
  etag: string;
}

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
};

/** The files of the console's page, read once. Only what the build put into its folder can be asked for. */
export class WebFiles {
  readonly #files = new Map<string, WebFile>();

  constructor(folder: string) {
    const { createHash } = process.getBuiltinModule("node:crypto");
    const { gzipSync } = process.getBuiltinModule("node:zlib");
    for (const name of readdirSync(folder)) {
      const type = TYPES[extname(name)];
      if (type === undefined) continue;
      const bytes = readFileSync(join(folder, name));
      const gzip = type.startsWith("image/png") ? null : gzipSync(bytes);
      const etag = `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 22)}"`;
      this.#files.set(`/${name}`, { bytes, gzip, type, etag });
    }
    const index = this.#files.get("/index.html");
    if (!index) throw new Error(`the web console is not built: ${join(folder, "index.html")} is missing`);
    this.#files.set("/", index);
  }

  find(path: string): WebFile | null {
    return this.#files.get(path) ?? null;
  }
}
