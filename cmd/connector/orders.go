package main

// ordersDDL has the columns of the demo's orders, as in the shipped config.yaml.
const ordersDDL = "order_id string not null, customer_id string, store_id bigint, quantity int, total double, discount double, " +
	"created_at timestamp, paid boolean, status string, coupon string, " +
	"shipping struct<street:string,city:string,zip:string,country:string,lat:double,note:string>, tags array<string>"
