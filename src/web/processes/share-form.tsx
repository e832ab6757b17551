import { useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { AttachRole, ExecServerClient } from "../../client/browser.ts";
import { shareUrl } from "./share-link.ts";

const HOUR_MS = 3600_000;
const EXPIRIES: readonly [string, number][] = [
  ["15 minutes", HOUR_MS / 4],
  ["1 hour", HOUR_MS],
  ["1 day", 24 * HOUR_MS],
  ["1 week", 7 * 24 * HOUR_MS],
];

type CreatedLink =
  | { type: "none" }
  | { type: "link"; address: string; until: Date }
  | { type: "refused"; reason: string };

/** Form that creates a share link for this process. */
export function ShareForm({ client, handle }: { client: ExecServerClient; handle: string }) {
  const [role, setRole] = useState<AttachRole>("viewer");
  const [ttlMs, setTtl] = useState(HOUR_MS);
  const [made, setMade] = useState<CreatedLink>({ type: "none" });
  const make = async () => {
    try {
      const { token, expiresAtMs } = await client.share(handle, { role, ttlMs });
      setMade({ type: "link", address: shareUrl({ token, handle, role }), until: new Date(expiresAtMs) });
    } catch (error) {
      setMade({ type: "refused", reason: errorMessage(error) });
    }
  };
  return (
    <>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void make();
        }}
      >
        <label class="choice">
          They may
          <select
            value={role}
            onChange={(event) => setRole(event.currentTarget.value === "driver" ? "driver" : "viewer")}
          >
            <option value="viewer">watch</option>
            <option value="driver">watch and type</option>
          </select>
        </label>
        <label class="choice">
          For
          <select value={String(ttlMs)} onChange={(event) => setTtl(Number(event.currentTarget.value))}>
            {EXPIRIES.map(([name, ms]) => (
              <option key={name} value={String(ms)}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <button type="submit">Make a link</button>
      </form>
      {made.type === "refused" && <p role="alert">{made.reason}</p>}
      {made.type === "link" && (
        <p>
          <label>
            Whoever has this address may use it until {made.until.toLocaleString()}; it is shown this once
            <input readOnly value={made.address} onFocus={(event) => event.currentTarget.select()} />
          </label>
        </p>
      )}
    </>
  );
}
