// Takes, shows and releases a lease by a client that was generated from the OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

const client = createClient<paths>({ baseUrl: process.argv[2] });

async function main(): Promise<void> {
  const taken = await client.POST("/api/locks", { body: { names: ["typescript"], owner: "test:typescript" } });
  const lease: components["schemas"]["Lease"] | null | undefined = taken.data?.lease;
  if (!lease) throw new Error(JSON.stringify(taken.error));
  const held = await client.GET("/api/locks/{id}", { params: { path: { id: lease.id } } });
  console.log(`${lease.id} ${held.data?.lease?.owner} ${lease.resources[0]?.name}`);
  const wrong = await client.DELETE("/api/locks/{id}", { params: { path: { id: lease.id } } });
  console.log(wrong.error?.error.reason_code);
  const released = await client.DELETE("/api/locks/{id}", { params: { path: { id: lease.id }, query: { token: lease.token } } });
  console.log(released.data?.status);
  const runs: components["schemas"]["RunListItem"][] = (await client.GET("/api/runs")).data?.runs ?? [];
  console.log(runs.map((run) => `${run.title} ${run.status}`).join());
}

void main();
