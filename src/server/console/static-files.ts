import { readdirSync, readFileSync } from "node:fs";
import { extname, join } from "node:path";

export interface StaticFile {
  bytes: Buffer;
  /** Null if compression does not pay off. */
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

/** Files of the console, read once at startup. Only files of the build directory are served. */
export class StaticFiles {
  readonly #files = new Map<string, StaticFile>();

  constructor(directory: string) {
    const { createHash } = process.getBuiltinModule("node:crypto");
    const { gzipSync } = process.getBuiltinModule("node:zlib");
    for (const name of readdirSync(directory)) {
      const type = TYPES[extname(name)];
      if (type === undefined) continue;
      const bytes = readFileSync(join(directory, name));
      const gzip = type.startsWith("image/png") ? null : gzipSync(bytes);
      const etag = `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 22)}"`;
      this.#files.set(`/${name}`, { bytes, gzip, type, etag });
    }
    const index = this.#files.get("/index.html");
    if (!index) throw new Error(`the web console is not built: ${join(directory, "index.html")} is missing`);
    this.#files.set("/", index);
  }

  find(path: string): StaticFile | null {
    return this.#files.get(path) ?? null;
  }
}
