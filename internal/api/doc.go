// Package api is the ops API: what operators can see and do, over HTTP. It is a front end of package admin, as the commands
// are: a handler calls a function of admin and encodes its result. openapi.yaml is the contract; a test keeps it equal to
// the routes. docs/api.md is the page for operators.
//
// Every request passes the same checks, in this order: the host, the origin, the rate limit, the token, the route, the role,
// the number of requests at a time, the query and the body. Only then does it reach a handler.
package api
