import { bracketHost } from "../../base/ip-address.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import { usePolled } from "../app/use-polling.ts";
import { Badge } from "../components/badge.tsx";
import { TableHeader } from "../components/table-header.tsx";

const POLL_INTERVAL_MS = 2_000;

/** Network targets of the process, with the decisions of its network policy. */
export function ProcessConnections({ client, handle }: { client: ExecServerClient; handle: string }) {
  const { value, problem } = usePolled((signal) => client.connections(handle, { signal }), POLL_INTERVAL_MS, [
    client,
    handle,
  ]);
  if (problem !== null) return <p role="alert">{problem}</p>;
  if (value === null) return null;
  if (value.connections.length === 0) return <p>No requests, or the process has no network policy.</p>;
  return (
    <>
      <table class="narrow">
        <TableHeader titles={["Target", "Protocol", "Decision", "Reason", "Requests"]} numbers={["Requests"]} />
        <tbody>
          {value.connections.map(({ host, port, protocol, decision, reason, count }) => (
            <tr key={`${decision} ${reason} ${protocol} ${host} ${port}`}>
              <td class="command">{`${bracketHost(host)}:${port}`}</td>
              <td>{protocol}</td>
              <td>
                <Badge
                  tone={decision === "allow" ? "success" : "failure"}
                  label={decision === "allow" ? "allowed" : "blocked"}
                />
              </td>
              <td>{reason === "allow" ? "" : reason.replaceAll("_", " ")}</td>
              <td class="number">{count}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {value.omitted > 0 && <p>{value.omitted} requests to further targets are not shown.</p>}
    </>
  );
}
