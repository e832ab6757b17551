import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { JobPage } from "../jobs/job-page.tsx";
import { JobsPage } from "../jobs/jobs-page.tsx";
import { RowView } from "../jobs/row-page.tsx";
import { ProcessPage } from "../processes/process-page.tsx";
import { ProcessesPage } from "../processes/processes-page.tsx";
import { type ShareLink, takeShareLink, tokenProtocols } from "../processes/share-link.ts";
import { ServerPage } from "../server/server-page.tsx";
import { handleSubmit } from "./handle-submit.ts";
import { type Route, toHref, useRoute } from "./route.ts";
import { fetchIdentity, type Identity, type IdentityResult, signIn, signOut, takeToken } from "./sign-in.ts";
import { useClient } from "./use-client.ts";

/** Shows the one process of a share link, or signs in. */
export function Console() {
  const [share] = useState(takeShareLink);
  return share ? <Guest share={share} /> : <SignedIn />;
}

/** View of a guest: one process, without navigation. */
function Guest({ share }: { share: ShareLink }) {
  const [protocols] = useState(() => tokenProtocols(share.token));
  const connection = useClient(protocols);
  if (connection.type === "connecting") return <CenteredMessage>Connecting…</CenteredMessage>;
  if (connection.type === "failed") {
    return (
      <CenteredMessage isAlert>This link does not work. It may have expired, or the process has ended.</CenteredMessage>
    );
  }
  return (
    <>
      <header>
        <strong>procwire</strong>
        <span>shared process</span>
        <span class="spacer" />
        <output aria-live="polite">{connection.type === "reconnecting" ? "connection lost, reconnecting…" : ""}</output>
      </header>
      <main>
        <ProcessPage client={connection.client} handle={share.handle} guest={share.role} />
      </main>
    </>
  );
}

/** Signs in with the token in the URL, or asks the user for a token, then shows the console. */
function SignedIn() {
  const [identity, setIdentity] = useState<IdentityResult | { type: "loading" }>({ type: "loading" });
  const [problem, setProblem] = useState<string | null>(null);
  const authenticate = async (token: string | null) => {
    const failure = token === null ? null : await signIn(token);
    const fetched = await fetchIdentity();
    setIdentity(fetched);
    setProblem(fetched.type === "signedIn" ? null : failure);
  };
  useEffect(() => {
    // A failure is stored in the state.
    void authenticate(takeToken());
  }, []);
  switch (identity.type) {
    case "loading":
      return <CenteredMessage>Connecting…</CenteredMessage>;
    case "unreachable":
      return <CenteredMessage>The server cannot be reached. Reload the page when it runs again.</CenteredMessage>;
    case "signedOut":
      return <SignIn problem={problem} onToken={(token) => void authenticate(token)} />;
    case "signedIn":
      return <Frame me={identity.me} />;
  }
}

/** Page with only a message. */
function CenteredMessage({ isAlert = false, children }: { isAlert?: boolean; children: ComponentChildren }) {
  return (
    <main class="sign-in">
      <h1>procwire</h1>
      <p role={isAlert ? "alert" : undefined}>{children}</p>
    </main>
  );
}

function SignIn({ problem, onToken }: { problem: string | null; onToken: (token: string) => void }) {
  const [token, setToken] = useState("");
  return (
    <main class="sign-in">
      <h1>procwire</h1>
      <p>Open the URL that the server printed at its start, or paste its token. A URL works once.</p>
      <form onSubmit={handleSubmit(() => token.trim() !== "" && onToken(token.trim()))}>
        <label>
          Token
          <input
            type="password"
            autocomplete="off"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <button type="submit">Sign in</button>
      </form>
      {problem !== null && <p role="alert">{problem}</p>}
    </main>
  );
}

function Frame({ me }: { me: Identity }) {
  const route = useRoute();
  const connection = useClient();
  if (connection.type === "connecting") return <CenteredMessage>Connecting…</CenteredMessage>;
  if (connection.type === "failed") return <CenteredMessage isAlert>{connection.reason}</CenteredMessage>;
  const { client } = connection;
  return (
    <>
      <header>
        <strong>procwire</strong>
        <nav aria-label="Pages">
          <NavLink to={{ page: "processes" }} route={route}>
            Processes
          </NavLink>
          <NavLink to={{ page: "jobs" }} route={route}>
            Jobs
          </NavLink>
          <NavLink to={{ page: "server" }} route={route}>
            Server
          </NavLink>
        </nav>
        <span class="spacer" />
        <output aria-live="polite">{connection.type === "reconnecting" ? "connection lost, reconnecting…" : ""}</output>
        <span title="principal of this console">
          {me.id}
          {me.role === "operator" ? " (operator)" : ""}
        </span>
        <button type="button" onClick={() => void signOut()}>
          Sign out
        </button>
      </header>
      <main>
        {route.page === "processes" && <ProcessesPage client={client} me={me} />}
        {route.page === "process" && <ProcessPage key={route.handle} client={client} handle={route.handle} />}
        {route.page === "jobs" && <JobsPage />}
        {route.page === "job" && <JobPage key={route.jobId} jobId={route.jobId} />}
        {route.page === "row" && (
          <RowView key={`${route.jobId}/${route.itemId}`} client={client} jobId={route.jobId} itemId={route.itemId} />
        )}
        {route.page === "server" && <ServerPage client={client} />}
      </main>
    </>
  );
}

function NavLink({ to, route, children }: { to: Route; route: Route; children: ComponentChildren }) {
  return (
    <a href={toHref(to)} aria-current={to.page === route.page ? "page" : undefined}>
      {children}
    </a>
  );
}
