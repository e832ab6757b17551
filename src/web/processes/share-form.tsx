import { useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { AttachRole, ExecServerClient } from "../../client/browser.ts";
import { handleSubmit } from "../app/handle-submit.ts";
import { shareUrl } from "./share-link.ts";

const HOUR_MS = 3600_000;
const EXPIRIES: readonly [string, number][] = [
  ["15 minutes", HOUR_MS / 4],
  ["1 hour", HOUR_MS],
  ["1 day", 24 * HOUR_MS],
  ["1 week", 7 * 24 * HOUR_MS],
];

type CreatedLink = { type: "none" } | { type: "link"; url: string; until: Date } | { type: "refused"; reason: string };

/** Form that creates a share link for this process. */
export function ShareForm({ client, handle }: { client: ExecServerClient; handle: string }) {
  const [role, setRole] = useState<AttachRole>("viewer");
  const [ttlMs, setTtl] = useState(HOUR_MS);
  const [created, setCreated] = useState<CreatedLink>({ type: "none" });
  const createLink = async () => {
    try {
      const { token, expiresAtMs } = await client.share(handle, { role, ttlMs });
      setCreated({ type: "link", url: shareUrl({ token, handle, role }), until: new Date(expiresAtMs) });
    } catch (error) {
      setCreated({ type: "refused", reason: errorMessage(error) });
    }
  };
  return (
    <>
      <form onSubmit={handleSubmit(() => void createLink())}>
        <label class="choice">
          Guests may
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
        <button type="submit">Create link</button>
      </form>
      {created.type === "refused" && <p role="alert">{created.reason}</p>}
      {created.type === "link" && (
        <p>
          <label>
            Every holder of this link can use it until {created.until.toLocaleString()}. It is shown only once.
            <input readOnly value={created.url} onFocus={(event) => event.currentTarget.select()} />
          </label>
        </p>
      )}
    </>
  );
}
