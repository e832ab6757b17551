import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tarball } from "../../scripts/build/pack-all.ts";
import { PLATFORMS } from "../../scripts/build/platforms.ts";
import { manifestIn } from "./tarballs.ts";

/**
 * A registry on loopback that serves only the platform packages, as if they were published. npm selects the package of
 * a platform as it does for users.
 */
export class PackageRegistry implements AsyncDisposable {
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      const url = decodeURIComponent(request.url ?? "");
      const platform = PLATFORMS.find(({ name }) => url === `/@procwire/${name}` || url === `/tarballs/${name}.tgz`);
      if (!platform) return void response.writeHead(404).end("{}");
      const bytes = readFileSync(tarball(platform));
      if (url.endsWith(".tgz")) {
        response.end(bytes);
        return;
      }
      const manifest = manifestIn(tarball(platform));
      const dist = {
        tarball: `${this.url}tarballs/${platform.name}.tgz`,
        integrity: `sha512-${createHash("sha512").update(bytes).digest("base64")}`,
      };
      response.setHeader("content-type", "application/json");
      response.end(
        JSON.stringify({
          name: manifest.name,
          "dist-tags": { latest: manifest.version },
          versions: { [manifest.version]: { ...manifest, dist } },
        }),
      );
    });
  }

  static async open(): Promise<PackageRegistry> {
    const registry = new PackageRegistry();
    registry.#server.listen(0, "127.0.0.1");
    await once(registry.#server, "listening");
    return registry;
  }

  get url(): string {
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}/`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}
