-- Who is there, or was. Returns the time in milliseconds and for each member: id, when it was last seen, its status and
-- since when, its last JSON, what the key of its registration holds (none, string, large or other), its value.
-- Other programs may write here, too: what exceeds a bound is measured and never read. Of its id the first bytes are
-- returned, of anything else nothing.
-- KEYS: seen, expires, status, last. ARGV: how registrations' keys begin, how many members to return, and how many bytes
-- an id, a value, and all of them together may have.
local time = redis.call('TIME')
local function int(n) return string.format('%.0f', n) end
local left = tonumber(ARGV[5])
local function fits(bytes, most)
  if bytes > tonumber(most) or bytes > left then return false end
  left = left - bytes
  return true
end
local function field(key, id)
  if not fits(redis.call('HSTRLEN', key, id), ARGV[4]) then return '' end
  return redis.call('HGET', key, id) or ''
end

local all = {int(time[1] * 1000 + math.floor(time[2] / 1000))}
local seen = redis.call('ZREVRANGE', KEYS[1], 0, ARGV[2] - 1, 'WITHSCORES')
for i = 1, #seen, 2 do
  local id, shown, status, last, kind, value = seen[i], seen[i], '', '', 'none', ''
  if fits(#id, ARGV[3]) then
    status, last = field(KEYS[3], id), field(KEYS[4], id)
    local bytes = redis.pcall('STRLEN', ARGV[1] .. id)
    if type(bytes) == 'table' then
      if not string.find(bytes.err, 'WRONGTYPE', 1, true) then return bytes end
      kind = 'other'
    elseif not fits(bytes, ARGV[4]) then
      kind = 'large'
    else
      local registration = redis.call('GET', ARGV[1] .. id)
      if registration then kind, value = 'string', registration end
    end
  else
    shown = string.sub(id, 1, 100)
  end
  all[#all + 1] = shown
  all[#all + 1] = int(tonumber(seen[i + 1]))
  all[#all + 1] = status
  all[#all + 1] = last
  all[#all + 1] = kind
  all[#all + 1] = value
end
return all
